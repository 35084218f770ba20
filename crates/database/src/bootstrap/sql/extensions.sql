-- The extensions of every project. An extension that lies in another schema stays there.
select pg_temp.ensure_extension(name, 'extensions') from unnest('{pgcrypto,uuid-ossp,pg_stat_statements}'::text[]) as name;
-- As on the hosted service; the extension itself leaves it to superusers
do $$
declare reset regprocedure;
begin
  for reset in
    select p.oid from pg_proc as p join pg_depend as d on d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e'
      join pg_extension as e on e.oid = d.refobjid and e.extname = 'pg_stat_statements'
     where p.proname = 'pg_stat_statements_reset'
  loop
    perform pg_temp.attempt(reset::text || ' by postgres', format('grant execute on function %s to postgres', reset), '');
  end loop;
end $$;
