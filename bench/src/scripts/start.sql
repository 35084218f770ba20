-- Before the first transaction of a client: what its audit entries hold, and the number that its
-- accounts begin with.
\if :started
\else
select json_build_object('actor_id', users.id, 'actor_via_sso', false, 'actor_username', users.email,
                         'action', 'login', 'log_type', 'account', 'traits', json_build_object('provider', 'email'))
           as payload
  from auth.users
 where users.email = 'limit-' || :client_id || '@example.com' \gset
\set number :run * 10000000000 + :client_id * 100000000
\set started 1
\endif
