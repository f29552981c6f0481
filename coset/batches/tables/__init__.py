"""Result tables: what they hold, their commits, exchange, restoring, compaction, schema. Nobody else knows Delta."""
