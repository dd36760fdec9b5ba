"""Real servers on this machine, for tests and for whoever wants to see a move between clusters.

    cli         the command: up, down, env, status
    running     up, down, restart, status of servers by name, under one folder
    catalog     which servers there are
    hdfs s3 spark kafka livy flink yarn kubernetes
                                       what each is made of: its processes, configuration, and when
                                       it is ready
    server      what a server is, to whoever starts it
    hadoop      Hadoop's programs, and the configuration of its clients
    kerberos    a realm with a KDC, keytabs and tickets
    asking      what a server says when it is asked whether it is there
    place       one server's folder: its ports, its processes, their logs
    processes   a process that outlives us and is told from any other by pid and start time
    ports       ports that are free
    downloads   jars by Maven, Python packages by pip, programs by Go, once, outside the checkout
    faults      what can go wrong

The folder is $STATESHIFT_SERVERS, else one of this user's below the system's temporary directory:

    hdfs-a/              one server; removed when it is stopped
      server.json        its ports
      pids/namenode      pid and start time, written by the process itself before it becomes the
                         server
      logs/namenode.log  of this start; .before of the last one
      conf/ data/ tmp/   its configuration, its data, and what it would leave in the temporary
                         directory
    hadoop-conf/         HADOOP_CONF_DIR that names every HDFS that is up
    hdfscli.cfg          the same for the `hdfs` package
    bin/                 `hdfs` and `hadoop` for them
    lock                 one up or down at a time

Downloads are kept in $STATESHIFT_SERVERS_CACHE, else in the user's cache directory.
"""

from servers.catalog import NAMES
from servers.faults import Failed, Fault, Unavailable
from servers.running import Servers, State, default_root

__all__ = ["NAMES", "Failed", "Fault", "Servers", "State", "Unavailable", "default_root"]
