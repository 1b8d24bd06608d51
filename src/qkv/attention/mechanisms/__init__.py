"""Other mathematics than soft-max over all keys: functions of queries, keys, values and layouts."""
