create extension if not exists "pgcrypto";
create extension if not exists citext with schema public;
create type pricing_type as enum ('one_time', 'recurring');
create table users (
  id uuid references auth.users not null primary key,
  email citext unique,
  billing_address jsonb
);
alter table users enable row level security;
create policy "Can view own user data." on users for select using (auth.uid() = id);
create table customers (id uuid references auth.users not null primary key, stripe_customer_id text);
alter table customers enable row level security;
-- No policies as this is a private table that the user must not have access to.
create table products (
  id text primary key default encode(gen_random_bytes(8), 'hex'),
  active boolean,
  name text,
  metadata jsonb default '{}'::jsonb,
  digest text generated always as (md5(coalesce(name, ''))) stored
);
alter table products enable row level security;
create policy "Allow public read-only access." on products for select using (true);
create table prices (
  id text primary key,
  product_id text references products,
  unit_amount bigint check (unit_amount >= 0),
  currency text check (char_length(currency) = 3),
  type pricing_type
);
alter table prices enable row level security;
create policy "Allow public read-only access." on prices for select using (true);
drop publication if exists supabase_realtime;
create publication supabase_realtime for table products, prices;
create function public.handle_new_user() returns trigger as $$
begin
  insert into public.users (id, email) values (new.id, new.email);
  return new;
end;
$$ language plpgsql security definer;
create trigger on_auth_user_created after insert on auth.users for each row execute procedure public.handle_new_user();
