insert into auth.users (instance_id, id, aud, role, email, encrypted_password, email_confirmed_at, raw_app_meta_data, raw_user_meta_data,
  created_at, updated_at, confirmation_token, email_change, email_change_token_new, recovery_token)
values ('00000000-0000-0000-0000-000000000000', '8d0fd2b3-9ca7-4d9e-a95f-9e13dded323e', 'authenticated', 'authenticated', 'first@example.com',
  crypt('password', gen_salt('bf')), now(), '{"provider":"email","providers":["email"]}', '{}', now(), now(), '', '', '', '');
insert into public.channels (slug, created_by) values ('public', '8d0fd2b3-9ca7-4d9e-a95f-9e13dded323e');
insert into public.messages (message, channel_id, user_id) values ('Hello', 1, '8d0fd2b3-9ca7-4d9e-a95f-9e13dded323e');
