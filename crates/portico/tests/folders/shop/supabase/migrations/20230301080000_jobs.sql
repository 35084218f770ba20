create extension if not exists pg_cron with schema pg_catalog;
grant usage on schema cron to postgres;
grant all privileges on all tables in schema cron to postgres;
select cron.schedule('expire-carts', '*/10 * * * *', $$ delete from public.products where active is false $$);
select cron.schedule('report', '0 6 * * mon-fri', $$ select net.http_post(url := 'http://kong:8000/functions/v1/report', headers := '{"Content-Type":"application/json"}'::jsonb) $$);
select cron.schedule('each', '@daily', 'vacuum public.products');
select cron.schedule('often', '30 seconds', 'select 1');
select cron.unschedule('each');
create trigger "order_hook" after insert or update on public.prices for each row
  execute function supabase_functions.http_request('http://host.docker.internal:54321/functions/v1/orders', 'POST', '{"Content-type":"application/json"}', '{}', '5000');
