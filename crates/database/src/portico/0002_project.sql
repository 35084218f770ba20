-- Whether the project folder's migrations and seeds have run: seeds run once, on the first start.
create table portico.project_set_up (
  only_row boolean primary key default true check (only_row),
  migrations_applied_at timestamptz,
  seeds_applied_at timestamptz
);
insert into portico.project_set_up default values;
