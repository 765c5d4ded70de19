// Workbooks on the server: docs/API.md has the routes.

import { RequestError } from "relserve-client/wire";

import type { SaveOutcome, WorkbookRead, WorkbookServer, WorkbookSummary } from "../app/workbook-sync";
import { readable } from "../app/workbook-content";
import { storedKey } from "../store/key";
import { t } from "../text";
import { type List, call } from "./api";
import { me } from "./people";

const path = (id: string) => `v1/workbooks/${encodeURIComponent(id)}`;

/**
 * The workbooks of one tenant. The key that the page has may become another tenant's at any time, since another tab signs in
 * with it: it is looked at before each round, and is used for all of that round.
 */
export function workbooksOf(scope: string | undefined): WorkbookServer {
  /** The last key that was found to be the tenant's. */
  let key: string | undefined;
  const as = () => {
    if (key === undefined) throw new Error(t.failure.notSignedIn);
    return key;
  };
  return {
    list: async () => {
      const now = storedKey();
      if (now !== key) {
        if ((await me(now)).workbooks !== scope) throw new Error(t.failure.otherTenant);
        key = now;
      }
      return (await call<List<WorkbookSummary>>("GET", "v1/workbooks", { key })).data;
    },

    read: async (id) => {
      try {
        return readable(await call<WorkbookRead>("GET", path(id), { key: as() }));
      } catch (error) {
        if (error instanceof RequestError && error.status === 404) return undefined;
        throw error;
      }
    },

    save: async (id, name, content, base, { keepalive = false, closesVersion } = {}): Promise<SaveOutcome> => {
      try {
        const body = { name, content, base, ...(closesVersion ? { close_version: true } : {}) };
        const saved = await call<WorkbookSummary>("POST", path(id), { body, keepalive, key: as() });
        return { version: saved.version };
      } catch (error) {
        if (error instanceof RequestError && error.status === 409) return "stale";
        if (error instanceof RequestError && error.status === 404) return "gone";
        throw error;
      }
    },

    remove: async (id, version) => {
      await call("DELETE", `${path(id)}?version=${version}`, { key: as() }).catch((error: unknown) => {
        // It is gone already, or somebody saved it meanwhile: the next look brings it back.
        if (!(error instanceof RequestError && (error.status === 404 || error.status === 409))) throw error;
      });
    },
  };
}

/** A version that the server keeps. */
export interface Version {
  version: number;
  name: string;
  bytes: number;
  /** Unix seconds. */
  saved: number;
}

/** A link that shows a workbook. */
export interface Share {
  id: number;
  /** Behind the server's address; told once. */
  path?: string;
  /** Unix seconds. */
  created: number;
  expires: number;
}

/** The versions of a workbook, the newest first. */
export const versions = async (id: string) => (await call<List<Version>>("GET", `${path(id)}/versions`)).data;

/** A version with what was saved. */
export const version = async (id: string, number: number) =>
  readable(await call<WorkbookRead>("GET", `${path(id)}?version=${number}`));

/** The links that show a workbook. */
export const shares = async (id: string) => (await call<List<Share>>("GET", `${path(id)}/shares`)).data;

/** Makes a link. */
export const share = (id: string, days: number) => call<Share>("POST", `${path(id)}/shares`, { body: { days } });

/** Ends a link. */
export const endShare = (id: string, number: number) => call("DELETE", `${path(id)}/shares/${number}`);

/** What a link shows. */
export const shared = async (token: string) =>
  readable(await call<WorkbookRead & { saved: number }>("GET", "v1/shared", { key: token }));
