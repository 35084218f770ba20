-- POST /verify with a code from an email: `post`, `by_code` and `redeem` of
-- crates/auth/src/account/verify/, and `issue` of session/mod.rs, their statements in
-- crates/auth/src/sql, in the same round trips. The accounts are numbered; each is used once.
\ir start.sql
\startpipeline
begin;
select users.id, users.aud, users.role, users.email, users.encrypted_password,
       users.email_confirmed_at, users.invited_at, users.confirmation_token, users.confirmation_sent_at,
       users.recovery_token, users.recovery_sent_at, users.email_change_token_new, users.email_change_token_current,
       users.email_change, users.email_change_sent_at, users.email_change_confirm_status, users.last_sign_in_at,
       users.raw_app_meta_data, users.raw_user_meta_data, users.phone, users.phone_confirmed_at, users.phone_change,
       users.phone_change_token, users.phone_change_sent_at, users.confirmed_at, users.reauthentication_token,
       users.reauthentication_sent_at, users.banned_until, users.is_sso_user, users.deleted_at, users.is_anonymous,
       users.created_at, users.updated_at
  from auth.users
 where users.instance_id = '00000000-0000-0000-0000-000000000000'
   and lower(users.email) = (:number || '@example.com')
   and users.aud = 'authenticated'
   and not users.is_sso_user
   for no key update;
\endpipeline
\startpipeline
update auth.users set recovery_token = '', updated_at = now() where id = ('00000000-0000-4000-8000-' || :number)::uuid;
insert into auth.audit_log_entries (instance_id, id, payload, created_at, ip_address)
values ('00000000-0000-0000-0000-000000000000', gen_random_uuid(), :payload, now(), '');
delete from auth.one_time_tokens where user_id = ('00000000-0000-4000-8000-' || :number)::uuid;
update auth.users
   set raw_app_meta_data = coalesce(users.raw_app_meta_data, '{}')
                           || jsonb_build_object('provider', linked.providers -> 0, 'providers', linked.providers),
       updated_at = now()
  from (select jsonb_agg(oldest.provider order by oldest.first_made, oldest.provider) as providers
          from (select identities.provider, min(identities.created_at) as first_made
                  from auth.identities
                 where identities.user_id = ('00000000-0000-4000-8000-' || :number)::uuid
                 group by identities.provider) as oldest) as linked
 where users.id = ('00000000-0000-4000-8000-' || :number)::uuid
   and linked.providers is not null
   and (users.raw_app_meta_data -> 'providers') is distinct from linked.providers;
\ir person.sql
\endpipeline
\ir issue.sql
