"""Throwaway PostgreSQL and Kafka on this machine, for the demo, the tests and the benchmarks."""
