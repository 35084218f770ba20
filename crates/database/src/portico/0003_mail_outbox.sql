-- Mail is queued in the transaction that is its reason and sent afterwards, so that neither happens without the other.
create table portico.mail_outbox (
  id bigint generated always as identity primary key,
  kind text not null,
  recipient text not null,
  subject text not null,
  html text not null,
  headers jsonb not null default '[]',
  payload jsonb not null default '{}',
  attempts integer not null default 0,
  next_attempt_at timestamptz not null default now(),
  created_at timestamptz not null default now(),
  last_error text
);
create index mail_outbox_next_attempt_at_idx on portico.mail_outbox (next_attempt_at);
grant usage on schema portico to supabase_auth_admin;
grant select, insert, update, delete on portico.mail_outbox to supabase_auth_admin;
