-- `[api] auto_expose_new_tables`: what postgres makes in public is granted to the API roles; row
-- security is the guard.
set role postgres;
alter default privileges in schema public grant all on tables to postgres, anon, authenticated, service_role;
alter default privileges in schema public grant all on sequences to postgres, anon, authenticated, service_role;
alter default privileges in schema public grant all on functions to postgres, anon, authenticated, service_role;
reset role;
