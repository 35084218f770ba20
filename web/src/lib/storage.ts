/** A storage of texts by key. */
export interface KeyValueStorage {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
  removeItem(key: string): void;
}

export interface PageStorage extends KeyValueStorage {
  /** False when the values last as long as the page: private mode or blocked storage. */
  readonly isRemembered: boolean;
}

/** Opens the storage of this browser, or one in memory where the browser refuses. */
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

/** Deletes sessions that earlier versions stored under other keys. */
export function deleteEarlierSessions(currentKey: string): void {
  try {
    const keys = Array.from({ length: window.localStorage.length }, (_, index) => window.localStorage.key(index));
    for (const key of keys) {
      if (key !== null && key !== currentKey && isEarlierSessionKey(key)) window.localStorage.removeItem(key);
    }
  } catch {
    // Storage is blocked, so it holds nothing.
  }
}

function isEarlierSessionKey(key: string): boolean {
  return key === "supabase.auth.token" || /^sb-.*-auth-token/.test(key);
}

/** A storage that lasts as long as the tab: where to go after sign-in, which code is pending. */
export const tabStorage: KeyValueStorage = {
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
      // Without the value, sign-in leads to /app, and the address has to be typed again.
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

/** The provider of a sign-in that has begun in this tab, in `tabStorage`. */
export const pendingProviderKey = "portico.pending-provider";
