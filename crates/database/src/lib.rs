//! PostgreSQL: the embedded cluster, pools, roles, schema bootstrap and migrations
