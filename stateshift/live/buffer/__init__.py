"""A buffer before a streaming job, for sources that cannot be replayed: a socket, an HTTP hook.

    frames     a record as bytes, on disk and on the way to readers. Pure
    queue      what is accepted and not on disk yet, what memory still holds, the bounds. Pure
    log        the records on disk, in segments
    folder     the directory: what it is, who holds it, where readers are
    buffer     all of these in one process: a thread writes, producers and readers wait for nothing
    intake     what producers speak: lines over TCP, requests over HTTP
    serving    what readers speak, over HTTP
    client     the other end of it
    runner     a buffer and its listeners, as `stateshift live buffer` runs them
    source     the buffer as a source of Spark

What always holds:

* A producer's record goes into memory and gets the next number. One thread writes what has come in
  meanwhile, and syncs it once: producers never wait for each other's writes.
* Readers see a record only when it is synced. So a number that was read never means another record,
  and below the number that is promised nothing comes any more: that number is a frontier.
* What was answered as durable is there after kill -9 and after a loss of power, once and in order.
* Nothing is dropped. At a bound, producers are refused, or their sockets are not read.
"""
