create index concurrently if not exists prices_product on public.prices (product_id);
