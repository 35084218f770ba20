/** A receiver of events: one of the services that `portico.toml` can name. */
export interface AnalyticsAdapter {
  track(event: string, properties: Record<string, string>): void;
  identify(userId: string): void;
  reset(): void;
}
