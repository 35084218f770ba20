-- POST /signup of an address that needs no confirmation: `try_register`, `insert` and
-- `sign_in_confirmed` of crates/auth/src/account/registration.rs and `issue` of session/mod.rs,
-- their statements in crates/auth/src/sql, in the same round trips.
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
 where users.aud = 'authenticated'
   and not users.is_sso_user
   and (null::uuid is null or users.id <> null)
   and users.id in (select identities.user_id
                      from auth.identities
                     where identities.email = (:number || '@example.com')
                       and (identities.identity_data ->> 'email_verified') = 'true'
                       and identities.provider not like 'sso:%'
                       and identities.provider <> all ('{}'::text[])
                    union all
                    select owners.id
                      from auth.users as owners
                     where owners.instance_id = '00000000-0000-0000-0000-000000000000'
                       and lower(owners.email) = (:number || '@example.com'))
 order by users.email = (:number || '@example.com') desc nulls last
 limit 1
   for no key update;
\endpipeline
\startpipeline
insert into auth.users
    (instance_id, id, aud, role, email, encrypted_password, email_confirmed_at, invited_at, confirmation_token,
     confirmation_sent_at, recovery_token, recovery_sent_at, email_change_token_new, email_change,
     email_change_sent_at, last_sign_in_at, raw_app_meta_data, raw_user_meta_data, created_at, updated_at, phone,
     phone_confirmed_at, phone_change, phone_change_token, phone_change_sent_at, email_change_token_current,
     email_change_confirm_status, banned_until, reauthentication_token, reauthentication_sent_at, is_sso_user,
     deleted_at, is_anonymous)
values
    ('00000000-0000-0000-0000-000000000000', ('00000000-0000-4000-8000-' || :number)::uuid, 'authenticated', '',
     (:number || '@example.com'), '$2a$10$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW', null, null, '',
     null, '', null, '', '',
     null, null, '{"provider": "email", "providers": ["email"]}', '{}', now(), now(), null,
     null, '', '', null, '',
     0, null, '', null, false,
     null, false);
update auth.users set role = 'authenticated', updated_at = now() where id = ('00000000-0000-4000-8000-' || :number)::uuid;
insert into auth.identities
    (id, provider_id, user_id, identity_data, provider, last_sign_in_at, created_at, updated_at)
values (gen_random_uuid(), ('00000000-0000-4000-8000-' || :number)::uuid::text, ('00000000-0000-4000-8000-' || :number)::uuid,
        jsonb_build_object('sub', ('00000000-0000-4000-8000-' || :number)::uuid, 'email', (:number || '@example.com'), 'email_verified', false, 'phone_verified', false),
        'email', now(), now(), now())
returning identities.id, identities.provider_id, identities.user_id, identities.identity_data,
       identities.provider, identities.last_sign_in_at, identities.created_at, identities.updated_at,
       identities.email;
update auth.users
   set raw_user_meta_data =
           jsonb_build_object('sub', ('00000000-0000-4000-8000-' || :number)::uuid, 'email', (:number || '@example.com'), 'email_verified', false, 'phone_verified', false),
       updated_at = now()
 where id = ('00000000-0000-4000-8000-' || :number)::uuid;
\ir person.sql
\endpipeline
\startpipeline
insert into auth.audit_log_entries (instance_id, id, payload, created_at, ip_address)
values ('00000000-0000-0000-0000-000000000000', gen_random_uuid(), :payload, now(), '');
update auth.users
   set confirmation_token = '',
       email_confirmed_at = now(),
       is_anonymous = false,
       raw_user_meta_data = coalesce(raw_user_meta_data, '{}') || '{"email_verified": true}',
       updated_at = now()
 where id = ('00000000-0000-4000-8000-' || :number)::uuid;
update auth.identities
   set identity_data = identity_data || '{"email_verified": true}', updated_at = now()
 where user_id = ('00000000-0000-4000-8000-' || :number)::uuid
   and email = (:number || '@example.com')
   and (identity_data -> 'email_verified') is distinct from 'true';
\ir person.sql
\endpipeline
\ir issue.sql
