"""Kafka itself as a source: topics are read from their brokers, in ranges that the plan fixes."""
