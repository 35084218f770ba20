import { Component, type ReactNode } from "react";
import { PageLoadError } from "../lib/lazy-page";
import * as m from "../paraglide/messages";
import { Button } from "./ui/button";

interface Failure {
  isLoadFailure: boolean;
  /** The address at which it happened. */
  address: string | undefined;
}

/**
 * Shows the failure of what it contains, so that everything around it keeps working. Another
 * address ends it.
 */
export class ErrorBoundary extends Component<
  { address?: string; children: ReactNode },
  { failure: Failure | null; isOffline: boolean }
> {
  override state: { failure: Failure | null; isOffline: boolean } = { failure: null, isOffline: false };

  static getDerivedStateFromError(error: unknown) {
    return { failure: { isLoadFailure: error instanceof PageLoadError, address: undefined } };
  }

  static getDerivedStateFromProps(props: { address?: string }, state: { failure: Failure | null }) {
    if (!state.failure) return null;
    if (state.failure.address === undefined) return { failure: { ...state.failure, address: props.address } };
    return state.failure.address === props.address ? null : { failure: null, isOffline: false };
  }

  /**
   * Loads the page again, unless that would replace it by the browser's own page for a lost
   * connection.
   */
  private readonly tryAgain = async () => {
    try {
      await fetch("/portico/config.json", { cache: "no-store" });
      window.location.reload();
    } catch {
      this.setState({ isOffline: true });
    }
  };

  override render() {
    const { failure, isOffline } = this.state;
    if (!failure) return this.props.children;
    const { isLoadFailure } = failure;
    return (
      <div role="alert" className="mx-auto max-w-md py-24 text-center">
        <h1 className="text-2xl">{isLoadFailure ? m.page_not_loaded_title() : m.page_failed_title()}</h1>
        <p className="mt-3 text-soft">
          {isOffline ? m.error_unreachable() : isLoadFailure ? m.page_not_loaded_text() : m.page_failed_text()}
        </p>
        <Button className="mt-6" onClick={() => void this.tryAgain()}>
          {isLoadFailure ? m.page_not_loaded_retry() : m.page_failed_reload()}
        </Button>
      </div>
    );
  }
}
