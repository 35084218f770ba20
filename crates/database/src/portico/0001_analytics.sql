-- What visitors did, as the web app reports it. Properties are bounded by the collector before they arrive here.
create table portico.analytics_events (
  id bigint generated always as identity primary key,
  name text not null,
  properties jsonb not null default '{}',
  user_id uuid,
  session text,
  route text,
  occurred_at timestamptz not null,
  received_at timestamptz not null default now()
);
create index analytics_events_received_at_idx on portico.analytics_events (received_at);
create index analytics_events_name_occurred_at_idx on portico.analytics_events (name, occurred_at);
