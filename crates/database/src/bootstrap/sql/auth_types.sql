-- Functions of policies and the enumerations of schema auth.
set role supabase_auth_admin;

create or replace function auth.uid() returns uuid language sql stable as $$
  select coalesce(
    nullif(current_setting('request.jwt.claim.sub', true), ''),
    (nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'sub')
  )::uuid
$$;
create or replace function auth.role() returns text language sql stable as $$
  select coalesce(
    nullif(current_setting('request.jwt.claim.role', true), ''),
    (nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'role')
  )::text
$$;
create or replace function auth.email() returns text language sql stable as $$
  select coalesce(
    nullif(current_setting('request.jwt.claim.email', true), ''),
    (nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'email')
  )::text
$$;
create or replace function auth.jwt() returns jsonb language sql stable as $$
  select coalesce(
    nullif(current_setting('request.jwt.claim', true), ''),
    nullif(current_setting('request.jwt.claims', true), '')
  )::jsonb
$$;

select pg_temp.ensure_enum('auth.aal_level', '{aal1,aal2,aal3}'),
       pg_temp.ensure_enum('auth.code_challenge_method', '{s256,plain}'),
       pg_temp.ensure_enum('auth.factor_status', '{unverified,verified}'),
       pg_temp.ensure_enum('auth.factor_type', '{totp,webauthn,phone}'),
       pg_temp.ensure_enum('auth.one_time_token_type', '{confirmation_token,reauthentication_token,recovery_token,email_change_token_new,email_change_token_current,phone_change_token}'),
       pg_temp.ensure_enum('auth.oauth_registration_type', '{dynamic,manual}'),
       pg_temp.ensure_enum('auth.oauth_authorization_status', '{pending,approved,denied,expired}'),
       pg_temp.ensure_enum('auth.oauth_response_type', '{code}'),
       pg_temp.ensure_enum('auth.oauth_client_type', '{public,confidential}');
reset role;
