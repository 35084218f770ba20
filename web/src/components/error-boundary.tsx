import { Component, type ReactNode } from "react";
import * as m from "../paraglide/messages";
import { Button } from "./ui/button";

/** Shows the failure of what it contains, so that everything around it keeps working. */
export class ErrorBoundary extends Component<{ children: ReactNode }, { hasFailed: boolean }> {
  override state = { hasFailed: false };

  static getDerivedStateFromError() {
    return { hasFailed: true };
  }

  override render() {
    if (!this.state.hasFailed) return this.props.children;
    return (
      <div role="alert" className="mx-auto max-w-md py-24 text-center">
        <h1 className="text-2xl">{m.page_failed_title()}</h1>
        <p className="mt-3 text-soft">{m.page_failed_text()}</p>
        <Button className="mt-6" onClick={() => window.location.reload()}>
          {m.page_failed_reload()}
        </Button>
      </div>
    );
  }
}
