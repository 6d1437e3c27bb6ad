import { existsSync } from 'node:fs';
import path from 'node:path';
import type { NestExpressApplication } from '@nestjs/platform-express';
import express, { type NextFunction, type Request, type Response } from 'express';

/** Addresses that are not pages. */
const NO_PAGE = /^\/(v1|healthz|readyz|metrics)(\/|$)/;

/** Addresses of files: what was built, and what browsers ask for by themselves. Names of runs may hold dots, too. */
const FILE = /^\/(assets\/.*|[^/]*\.[^/]*)$/;

/** The console's built pages, where they are; any other address is one of its own, too. */
export function serveConsole(app: NestExpressApplication, folder: string): void {
  const index = path.join(folder, 'index.html');
  if (!existsSync(index)) return;
  const files = express.static(folder, { index: false, redirect: false, setHeaders: (response, file) => void response.setHeader('cache-control', file.includes(`${path.sep}assets${path.sep}`) ? 'public, max-age=31536000, immutable' : 'no-cache') });
  app.use((request: Request, response: Response, next: NextFunction) => {
    if ((request.method !== 'GET' && request.method !== 'HEAD') || NO_PAGE.test(request.path)) return next();
    files(request, response, (error?: unknown) => {
      if (error !== undefined) return next(error);
      if (FILE.test(request.path)) return next();
      response.setHeader('cache-control', 'no-cache');
      response.sendFile(index);
    });
  });
}
