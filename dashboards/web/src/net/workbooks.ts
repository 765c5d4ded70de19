// Workbooks on the server: docs/API.md has the routes.

import { RequestError } from "relserve-client/wire";

import type { SaveOutcome, WorkbookContent, WorkbookRead, WorkbookServer, WorkbookSummary } from "../app/workbook-sync";
import { type List, call } from "./api";

const path = (id: string) => `v1/workbooks/${encodeURIComponent(id)}`;

/** The server's workbooks. */
export const workbooks: WorkbookServer = {
  list: async () => (await call<List<WorkbookSummary>>("GET", "v1/workbooks")).data,

  read: async (id) => {
    try {
      return await call<WorkbookRead>("GET", path(id));
    } catch (error) {
      if (error instanceof RequestError && error.status === 404) return undefined;
      throw error;
    }
  },

  save: async (id, name, content, base, { keepalive = false, closesVersion } = {}): Promise<SaveOutcome> => {
    try {
      const body = { name, content, base, ...(closesVersion ? { close_version: true } : {}) };
      const saved = await call<WorkbookSummary>("POST", path(id), { body, keepalive });
      return { version: saved.version };
    } catch (error) {
      if (error instanceof RequestError && error.status === 409) return "stale";
      if (error instanceof RequestError && error.status === 404) return "gone";
      throw error;
    }
  },

  remove: async (id) => {
    await call("DELETE", path(id)).catch((error: unknown) => {
      if (!(error instanceof RequestError && error.status === 404)) throw error;
    });
  },
};

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
export const version = (id: string, number: number) => call<WorkbookRead>("GET", `${path(id)}?version=${number}`);

/** The links that show a workbook. */
export const shares = async (id: string) => (await call<List<Share>>("GET", `${path(id)}/shares`)).data;

/** Makes a link. */
export const share = (id: string, days: number) => call<Share>("POST", `${path(id)}/shares`, { body: { days } });

/** Ends a link. */
export const endShare = (id: string, number: number) => call("DELETE", `${path(id)}/shares/${number}`);

/** What a link shows. */
export const shared = (token: string) =>
  call<{ name: string; saved: number; content: WorkbookContent }>("GET", "v1/shared", { key: token });
