-- The session that began to link an identity, by the flow at the provider: a session that has ended links nothing.
create table portico.link_sessions (
  flow_id uuid primary key,
  -- Null: the access token belonged to no session.
  session_id uuid,
  created_at timestamptz not null
);
create index link_sessions_created_at_idx on portico.link_sessions (created_at);
grant select, insert, update, delete on portico.link_sessions to supabase_auth_admin;
