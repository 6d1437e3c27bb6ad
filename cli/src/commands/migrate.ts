import type { Command } from 'commander';
import { EXIT } from '../failure.js';
import { databaseStates, migrateAll, type ServiceDatabase } from '../migrations.js';
import { print, progress, table } from '../print.js';
import { findStack } from '../stack-file.js';

export function addMigrate(program: Command): void {
  program
    .command('migrate')
    .description('bring each service’s database to this version; a service that starts does the same for its own')
    .option('--check', 'change nothing; exit code 1 where something is missing')
    .option('--json', 'print JSON')
    .action(async ({ check, json }: { check?: boolean; json?: boolean }) => {
      const { databaseUrl } = await findStack('.');
      if (check !== true) await migrateAll(databaseUrl, progress);
      const states = await databaseStates(databaseUrl);
      print(json === true, { databases: states }, () => table(['service', 'database', 'applied', 'pending', 'of a newer version'], states.map(row)));
      if (states.some(({ pending }) => pending.length > 0)) process.exitCode = EXIT.no;
    });
}

const row = ({ service, database, exists, applied, pending, foreign }: ServiceDatabase): string[] => [service, exists ? database : `${database} (missing)`, String(applied.length), pending.join(', ') || '-', foreign.join(', ') || '-'];
