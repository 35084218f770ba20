/** Replaces the browser's `BroadcastChannel` between the tabs of one test. */
export class TabChannel extends EventTarget {
  static open: TabChannel[] = [];
  constructor(readonly name: string) {
    super();
    TabChannel.open.push(this);
  }
  postMessage(data: unknown): void {
    for (const other of TabChannel.open) {
      if (other !== this && other.name === this.name) other.dispatchEvent(new MessageEvent("message", { data }));
    }
  }
  close(): void {
    TabChannel.open = TabChannel.open.filter((other) => other !== this);
  }
}
