"""Every key a spec may hold, once: what reads specs, what writes them and the JSON Schema are all
made from these tables.

    key           one key, and the keys of one kind of object
    spec, job     the keys of the spec itself, and of a job
    parts         the keys of the objects inside of both
    rebalancing   the keys of `rebalance`
    changes       the keys of `transform`, kind by kind
    homes         where a key or a value belongs that stands at the wrong place
"""
