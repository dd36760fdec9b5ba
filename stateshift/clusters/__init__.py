"""Where jobs run.

protocol       the one interface, and what it promises
opening        from a cluster of the spec to one that can be asked
manual         a person            command        any shell commands (shell, records)
spark_submit/  processes here      memory         the in-memory twin
livy/, standalone/, flink/         each over HTTP (http/); what its API says is read in `calls`
detached       a process that outlives us, known by its tag to whoever comes later
stopping       the marker that asks a job to stop between two batches
"""
