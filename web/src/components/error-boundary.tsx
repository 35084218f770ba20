import { Component, type ReactNode } from "react";
import { Button } from "./ui/button";

/** Keeps one page's failure from taking the others along. */
export class ErrorBoundary extends Component<{ children: ReactNode }, { hasFailed: boolean }> {
  override state = { hasFailed: false };

  static getDerivedStateFromError() {
    return { hasFailed: true };
  }

  override render() {
    if (!this.state.hasFailed) return this.props.children;
    return (
      <div role="alert" className="mx-auto max-w-md py-24 text-center">
        <h1 className="text-2xl">This page stumbled</h1>
        <p className="mt-3 text-soft">The rest still works. Loading it again usually helps.</p>
        <Button className="mt-6" onClick={() => window.location.reload()}>
          Load again
        </Button>
      </div>
    );
  }
}
