-- The names of pg_graphql, so that SQL which creates the extension, grants on it or comments for it runs. Queries answer
-- with an error that says so.
create function graphql.resolve(query text, variables jsonb default '{}', "operationName" text default null, extensions jsonb default null)
returns jsonb language plpgsql stable as $$
begin
  return jsonb_build_object('errors', jsonb_build_array(jsonb_build_object('message', 'GraphQL queries are not supported by this server.')));
end $$;
create function graphql.comment_directive(comment_ text) returns jsonb language sql immutable as $$
  select coalesce((regexp_match(comment_, '@graphql\((.+)\)'))[1]::jsonb, jsonb_build_object())
$$;
create function graphql.get_schema_version() returns integer language sql stable as $$ select 1 $$;
do $$
begin
  if exists (select from pg_catalog.pg_roles where rolname = 'service_role') then
    grant usage on schema graphql to postgres, anon, authenticated, service_role;
    grant execute on all functions in schema graphql to postgres, anon, authenticated, service_role;
  end if;
end $$;
