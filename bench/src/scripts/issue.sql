-- A session for the person, and the end of the transaction: `issue` of
-- crates/auth/src/session/mod.rs. The next transaction has another person.
\startpipeline
insert into auth.sessions
    (id, user_id, created_at, updated_at, aal, user_agent, ip, tag, refresh_token_hmac_key, refresh_token_counter)
values (('00000000-0000-4000-9000-' || :number)::uuid, ('00000000-0000-4000-8000-' || :number)::uuid, now(), now(), 'aal1', 'bench', '127.0.0.1', null, null, null);
insert into auth.mfa_amr_claims (id, session_id, created_at, updated_at, authentication_method)
values (gen_random_uuid(), ('00000000-0000-4000-9000-' || :number)::uuid, now(), now(), 'password');
update auth.users set last_sign_in_at = now(), updated_at = now() where id = ('00000000-0000-4000-8000-' || :number)::uuid;
insert into auth.refresh_tokens
    (instance_id, token, user_id, revoked, created_at, updated_at, parent, session_id)
values ('00000000-0000-0000-0000-000000000000', :number, ('00000000-0000-4000-8000-' || :number)::uuid::text, false, now(), now(), null, ('00000000-0000-4000-9000-' || :number)::uuid);
\endpipeline
commit;
\set number :number + 1
