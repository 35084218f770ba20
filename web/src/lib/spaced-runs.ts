/**
 * Returns a function that starts `run` at once. Calls until `run` and the pause after its start are
 * over start it once more, together.
 */
export function spaceRuns(run: () => Promise<unknown>, pauseMs: number): () => void {
  let isBusy = false;
  let isWanted = false;
  return function request(): void {
    if (isBusy) {
      isWanted = true;
      return;
    }
    isBusy = true;
    const paused = new Promise((resume) => window.setTimeout(resume, pauseMs));
    void Promise.allSettled([run(), paused]).then(() => {
      isBusy = false;
      if (!isWanted) return;
      isWanted = false;
      request();
    });
  };
}
