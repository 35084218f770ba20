do $$ begin create role reporting nologin; exception when duplicate_object then null; end $$;
grant reporting to authenticator;
alter role authenticated set statement_timeout = '10s';
