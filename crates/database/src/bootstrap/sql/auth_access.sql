-- Row security, grants and the recorded migrations of schema auth.
set role supabase_auth_admin;
do $$
declare name text;
begin
  -- On without any policy: only the owner and roles that bypass row security see rows
  foreach name in array '{audit_log_entries,flow_state,identities,instances,mfa_amr_claims,mfa_challenges,mfa_factors,one_time_tokens,refresh_tokens,saml_providers,saml_relay_states,schema_migrations,sessions,sso_domains,sso_providers,users}'::text[] loop
    if not (select relrowsecurity from pg_class where oid = format('auth.%I', name)::regclass) then
      execute format('alter table auth.%I enable row level security', name);
    end if;
    execute format('grant select on auth.%I to postgres with grant option', name);
  end loop;
end $$;
grant all on all tables in schema auth to postgres, dashboard_user;
grant all on all sequences in schema auth to postgres, dashboard_user;
grant execute on all functions in schema auth to public, postgres, dashboard_user;
revoke insert, update, delete, truncate, references, trigger on auth.schema_migrations from postgres, dashboard_user;

insert into auth.schema_migrations (version) values ('00') on conflict do nothing;
insert into auth.schema_migrations (version)
select regexp_split_to_table(trim($versions$
  20171026211738 20171026211808 20171026211834 20180103212743 20180108183307 20180119214651 20180125194653
  20210710035447 20210722035447 20210730183235 20210909172000 20210927181326 20211122151130 20211124214934
  20211202183645 20220114185221 20220114185340 20220224000811 20220323170000 20220429102000 20220531120530
  20220614074223 20220811173540 20221003041349 20221003041400 20221011041400 20221020193600 20221021073300
  20221021082433 20221027105023 20221114143122 20221114143410 20221125140132 20221208132122 20221215195500
  20221215195800 20221215195900 20230116124310 20230116124412 20230131181311 20230322519590 20230402418590
  20230411005111 20230508135423 20230523124323 20230818113222 20230914180801 20231027141322 20231114161723
  20231117164230 20240115144230 20240214120130 20240306115329 20240314092811 20240427152123 20240612123726
  20240729123726 20240802193726 20240806073726 20241009103726 20250717082212 20250731150234 20250804100000
  20250901200500 20250903112500 20250904133000 20250925093508 20251007112900 20251104100000 20251111201300
  20251201000000 20260115000000 20260121000000 20260219120000 20260302000000 20260625000000
$versions$, E' \n'), '\s+')
on conflict do nothing;
reset role;
