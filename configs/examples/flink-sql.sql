-- Orders, numbered for each shop as they come: how many a shop has had is what the job remembers.

SET 'execution.checkpointing.interval' = '10 s';

CREATE TABLE orders (
  id BIGINT,
  arrived AS PROCTIME()
) WITH (
  'connector' = 'datagen',
  'rows-per-second' = '100',
  'scan.parallelism' = '1',
  'fields.id.kind' = 'sequence',
  'fields.id.start' = '0',
  'fields.id.end' = '99999'
);

CREATE TABLE numbered (
  shop BIGINT,
  number BIGINT,
  id BIGINT
) WITH (
  'connector' = 'filesystem',
  'path' = 's3://shop/numbered',
  'format' = 'csv',
  'sink.rolling-policy.rollover-interval' = '1 min',
  'sink.rolling-policy.check-interval' = '1 s'
);

INSERT INTO numbered
SELECT
  MOD(id, 7),
  COUNT(*) OVER (PARTITION BY MOD(id, 7) ORDER BY arrived ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW),
  id
FROM orders;
