"""A buffer before a streaming job, for sources that cannot be replayed: a socket, an HTTP hook.

    frames     a record as bytes, on disk and on the way to readers. Pure
    queue      records that are accepted and not on disk yet, or still in memory; bounds. Pure
    log        the records on disk, in segments
    folder     the directory: its kind, its holder, and the positions of readers
    buffer     all of these in one process: a thread writes, producers and readers wait for nothing
    listeners  producers speak lines over TCP, requests over HTTP; readers speak HTTP
    client     the reader's end of it
    runner     a buffer and its listeners, as `stateshift live buffer` runs them
    source     the buffer as a source of Spark

These always hold:

* A producer's record goes into memory and gets the next number. One thread writes what has come in
  meanwhile, and syncs it once: producers never wait for each other's writes.
* Readers see a record only when it is synced. A number that was read never means another record,
  and nothing comes below the number that is promised: that number is a frontier.
* A record that was answered as durable is there after kill -9 and after a loss of power, once and
  in order.
* Nothing is dropped. At a bound, producers are refused, or their sockets are not read.
"""
