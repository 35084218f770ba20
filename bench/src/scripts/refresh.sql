-- grant_type=refresh_token with stored tokens: `stored` of crates/auth/src/session/refresh.rs, its
-- statements in crates/auth/src/sql/refresh_tokens.rs, sessions.rs and audit_log_entries.rs, in the
-- same three round trips. Token texts are numbers here. The first transaction of a client looks up
-- whose session it plays and puts a token there.
\if :started
\else
select users.id as user_id, sessions.id as session_id,
       json_build_object('actor_id', users.id, 'actor_via_sso', false, 'actor_username', users.email,
                         'action', 'login', 'log_type', 'account', 'traits', json_build_object('provider', 'email'))
           as payload
  from auth.users join auth.sessions on sessions.user_id = users.id
 where users.email = 'limit-' || :client_id || '@example.com' limit 1 \gset
\set number :run * 10000000000 + :client_id * 100000000
update auth.refresh_tokens set revoked = true where session_id = :session_id and not revoked;
insert into auth.refresh_tokens
    (instance_id, token, user_id, revoked, created_at, updated_at, parent, session_id)
values ('00000000-0000-0000-0000-000000000000', :number, :user_id, false, now(), now(), null, :session_id);
\set started 1
\endif
\set parent :number
\set number :number + 1
\startpipeline
begin;
select sessions.id from auth.sessions where sessions.id = (select refresh_tokens.session_id from auth.refresh_tokens where refresh_tokens.token = :parent) for update;
select presented.id, presented.revoked, presented.updated_at, presented.session_id, active.token, active.parent
  from auth.refresh_tokens as presented
  left join lateral (select newest.token, newest.parent
                       from auth.refresh_tokens as newest
                      where newest.session_id = presented.session_id
                        and not newest.revoked
                      order by newest.id desc
                      limit 1) as active on true
 where presented.token = :parent;
select sessions.id, sessions.user_id, sessions.created_at, sessions.aal::text, sessions.not_after,
       sessions.refreshed_at, sessions.user_agent, sessions.ip, sessions.tag, sessions.oauth_client_id,
       sessions.refresh_token_hmac_key, sessions.refresh_token_counter,
       array(select amr.authentication_method from auth.mfa_amr_claims as amr
       where amr.session_id = sessions.id order by amr.updated_at desc, amr.id),
       array(select amr.updated_at from auth.mfa_amr_claims as amr
       where amr.session_id = sessions.id order by amr.updated_at desc, amr.id)
  from auth.sessions where sessions.id = (select refresh_tokens.session_id from auth.refresh_tokens where refresh_tokens.token = :parent);
select users.id, users.aud, users.role, users.email, users.encrypted_password,
       users.email_confirmed_at, users.invited_at, users.confirmation_token, users.confirmation_sent_at,
       users.recovery_token, users.recovery_sent_at, users.email_change_token_new, users.email_change_token_current,
       users.email_change, users.email_change_sent_at, users.email_change_confirm_status, users.last_sign_in_at,
       users.raw_app_meta_data, users.raw_user_meta_data, users.phone, users.phone_confirmed_at, users.phone_change,
       users.phone_change_token, users.phone_change_sent_at, users.confirmed_at, users.reauthentication_token,
       users.reauthentication_sent_at, users.banned_until, users.is_sso_user, users.deleted_at, users.is_anonymous,
       users.created_at, users.updated_at
  from auth.users where users.id = (select sessions.user_id from auth.sessions where sessions.id =
       (select refresh_tokens.session_id from auth.refresh_tokens where refresh_tokens.token = :parent));
select identities.id, identities.provider_id, identities.user_id, identities.identity_data,
       identities.provider, identities.last_sign_in_at, identities.created_at, identities.updated_at,
       identities.email
  from auth.identities where identities.user_id = (select sessions.user_id from auth.sessions where sessions.id =
       (select refresh_tokens.session_id from auth.refresh_tokens where refresh_tokens.token = :parent)) order by identities.created_at, identities.id;
select factors.id, factors.friendly_name, factors.factor_type::text, factors.status::text,
       factors.phone, factors.created_at, factors.updated_at, factors.last_challenged_at
  from auth.mfa_factors as factors where factors.user_id = (select sessions.user_id from auth.sessions where sessions.id =
       (select refresh_tokens.session_id from auth.refresh_tokens where refresh_tokens.token = :parent)) order by factors.created_at, factors.id;
\endpipeline
\startpipeline
-- This client made the current token, so its id is the last one that the sequence gave it
update auth.refresh_tokens set revoked = true, updated_at = now() where id = (select currval('auth.refresh_tokens_id_seq'));
insert into auth.audit_log_entries (instance_id, id, payload, created_at, ip_address)
values ('00000000-0000-0000-0000-000000000000', gen_random_uuid(), :payload, now(), '');
insert into auth.refresh_tokens
    (instance_id, token, user_id, revoked, created_at, updated_at, parent, session_id)
values ('00000000-0000-0000-0000-000000000000', :number, :user_id, false, now(), now(), :parent, :session_id);
update auth.sessions
   set refreshed_at = now() at time zone 'utc', user_agent = 'bench', ip = '127.0.0.1', updated_at = now()
 where id = :session_id;
insert into auth.audit_log_entries (instance_id, id, payload, created_at, ip_address)
values ('00000000-0000-0000-0000-000000000000', gen_random_uuid(), :payload, now(), '');
\endpipeline
commit;
