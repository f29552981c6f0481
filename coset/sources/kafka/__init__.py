"""Kafka brokers as a source: topics are read in ranges that the plan fixes."""
