-- The look of pg_net. Requests are rows of a queue; the server that runs this database takes them after the commit, sends
-- them and stores what came back.
create schema if not exists net;

create type net.request_status as enum ('PENDING', 'SUCCESS', 'ERROR');
create type net.http_response as (status_code integer, headers jsonb, body text);
create type net.http_response_result as (status net.request_status, message text, response net.http_response);

create unlogged table net.http_request_queue (
  id bigserial,
  method text not null,
  url text not null,
  headers jsonb,
  body bytea,
  timeout_milliseconds integer not null
);
create unlogged table net._http_response (
  id bigint,
  status_code integer,
  content_type text,
  headers jsonb,
  content text,
  timed_out boolean,
  error_msg text,
  created timestamptz not null default now()
);
create index _http_response_created_idx on net._http_response (created);
create index _http_response_id_idx on net._http_response (id);

create function net._urlencode_string(string text) returns text language sql immutable strict as $$
  select coalesce(string_agg(
           case when byte ~ '^[0-9A-Za-z._~-]$' then byte else '%' || upper(encode(piece, 'hex')) end, '' order by place), '')
    from (select place, piece, case when get_byte(piece, 0) between 33 and 126 then chr(get_byte(piece, 0)) else '' end as byte
            from (select n as place, substring(convert_to(string, 'UTF8') from n for 1) as piece
                    from generate_series(1, octet_length(convert_to(string, 'UTF8'))) as n) as pieces) as bytes
$$;

create function net._encode_url_with_params(url text, params jsonb) returns text language sql immutable as $$
  select url || coalesce(
    (select case when position('?' in url) > 0 then '&' else '?' end
            || string_agg(net._urlencode_string(name) || '=' || net._urlencode_string(value), '&')
       from jsonb_each_text(coalesce(params, '{}')) as param(name, value)), '')
$$;

create function net._http_enqueue(method text, url text, params jsonb, headers jsonb, body bytea, timeout_milliseconds integer)
returns bigint language plpgsql volatile as $$
declare request_id bigint;
begin
  insert into net.http_request_queue (method, url, headers, body, timeout_milliseconds)
  values (method, net._encode_url_with_params(url, params), headers, body, timeout_milliseconds)
  returning id into request_id;
  -- Arrives with the commit
  perform pg_catalog.pg_notify('portico_net', '');
  return request_id;
end $$;

create function net.http_get(url text, params jsonb default '{}', headers jsonb default '{}', timeout_milliseconds integer default 5000)
returns bigint language sql volatile as $$
  select net._http_enqueue('GET', url, params, headers, null, timeout_milliseconds)
$$;

create function net.http_post(
  url text, body jsonb default '{}', params jsonb default '{}', headers jsonb default '{"Content-Type": "application/json"}',
  timeout_milliseconds integer default 5000)
returns bigint language plpgsql volatile as $$
declare
  content_type text := (select value from jsonb_each_text(coalesce(headers, '{}')) as header(name, value) where lower(name) = 'content-type' limit 1);
begin
  if content_type is null then
    headers := coalesce(headers, '{}') || '{"Content-Type": "application/json"}';
  elsif content_type not like 'application/json%' then
    raise exception 'Content-Type header must be "application/json"';
  end if;
  return net._http_enqueue('POST', url, params, headers, convert_to(body::text, 'UTF8'), timeout_milliseconds);
end $$;

create function net.http_delete(
  url text, params jsonb default '{}', headers jsonb default '{}', timeout_milliseconds integer default 5000, body jsonb default null)
returns bigint language sql volatile as $$
  select net._http_enqueue('DELETE', url, params, headers, convert_to(body::text, 'UTF8'), timeout_milliseconds)
$$;

create function net._http_collect_response(request_id bigint, async boolean default true) returns net.http_response_result
language plpgsql volatile as $$
declare
  answer net._http_response;
  deadline timestamptz := clock_timestamp() + interval '30 seconds';
begin
  loop
    select * into answer from net._http_response as r where r.id = request_id;
    exit when found or async or clock_timestamp() > deadline;
    perform pg_sleep(0.05);
  end loop;
  if answer.id is not null then
    if answer.error_msg is not null then
      return ('ERROR', answer.error_msg, null)::net.http_response_result;
    end if;
    return ('SUCCESS', 'ok', (answer.status_code, answer.headers, answer.content)::net.http_response)::net.http_response_result;
  end if;
  if exists (select from net.http_request_queue as q where q.id = request_id) then
    return ('PENDING', 'request is pending processing', null)::net.http_response_result;
  end if;
  return ('ERROR', 'request matching request_id not found', null)::net.http_response_result;
end $$;

create function net.http_collect_response(request_id bigint, async boolean default true) returns net.http_response_result
language plpgsql volatile as $$
begin
  raise notice 'The net.http_collect_response function is deprecated.';
  return net._http_collect_response(request_id, async);
end $$;

create function net.wake() returns void language sql as $$ select pg_catalog.pg_notify('portico_net', '') $$;
create function net.check_worker_is_up() returns void language sql as '';

grant usage on schema net to public;
-- Neither trigger nor references: both run functions of the project with the rights of the tables' owner
grant select, insert, update, delete, truncate on all tables in schema net to public;
grant all on all sequences in schema net to public;
