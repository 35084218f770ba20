/** The storage of this browser, or of this page's memory where the browser refuses. */
export interface KeyValueStorage {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
  removeItem(key: string): void;
}

export interface PageStorage extends KeyValueStorage {
  /** False when everything is forgotten with the page: private mode or blocked storage. */
  readonly isRemembered: boolean;
}

export function openStorage(): PageStorage {
  try {
    const storage = window.localStorage;
    const probe = "portico.probe";
    storage.setItem(probe, "1");
    storage.removeItem(probe);
    return {
      isRemembered: true,
      getItem: (key) => storage.getItem(key),
      setItem: (key, value) => storage.setItem(key, value),
      removeItem: (key) => storage.removeItem(key),
    };
  } catch {
    const values = new Map<string, string>();
    return {
      isRemembered: false,
      getItem: (key) => values.get(key) ?? null,
      setItem: (key, value) => void values.set(key, value),
      removeItem: (key) => void values.delete(key),
    };
  }
}

/** Deletes the sessions that earlier versions left under other keys. */
export function deleteEarlierSessions(currentKey: string): void {
  try {
    const keys = Array.from({ length: window.localStorage.length }, (_, index) => window.localStorage.key(index));
    for (const key of keys) {
      if (key !== null && key !== currentKey && isEarlierSessionKey(key)) window.localStorage.removeItem(key);
    }
  } catch {
    // Storage is blocked, so nothing was left in it.
  }
}

function isEarlierSessionKey(key: string): boolean {
  return key === "supabase.auth.token" || /^sb-.*-auth-token/.test(key);
}

/** Notes that live as long as the tab: where to go after sign-in, whose code is awaited. */
export const tabNotes: KeyValueStorage = {
  getItem(key) {
    try {
      return window.sessionStorage.getItem(key);
    } catch {
      return null;
    }
  },
  setItem(key, value) {
    try {
      window.sessionStorage.setItem(key, value);
    } catch {
      // Without the note the person lands in /app or types their address again.
    }
  },
  removeItem(key) {
    try {
      window.sessionStorage.removeItem(key);
    } catch {
      // Nothing to remove.
    }
  },
};
