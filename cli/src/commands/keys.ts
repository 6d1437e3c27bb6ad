import type { Command } from 'commander';
import { z } from 'zod';
import { describeIssues, isoTime, Name, Tenant } from '@holdfast/protocol';
import type { Keys, KeyView } from '@holdfast/gateway';
import { isRole, KeyName, KeyRoles, ROLES } from '@holdfast/gateway/access';
import { durationMs } from '../duration.js';
import { CliError } from '../failure.js';
import { audited, withGatewayDatabase } from '../gateway.js';
import { print, progress, table } from '../print.js';
import { findStack } from '../stack-file.js';

interface CreateOptions {
  readonly name: string;
  readonly role: string[];
  readonly tenant: string;
  readonly tool?: string[];
  readonly amountMax?: string;
  readonly expires?: string;
  readonly json?: boolean;
}

export function addKeys(program: Command): void {
  const keys = program.command('keys').description('API keys of the gateway: who may ask, and for what');
  keys
    .command('create')
    .description('make a key and print it, once: only its hash is kept')
    .requiredOption('--name <name>', 'who or what it is for: commands are signed with it')
    .requiredOption('--role <role...>', `roles: ${ROLES.join(', ')}; others count where a contract asks for them`)
    .option('--tenant <tenant>', 'whose runs it sees', 'default')
    .option('--tool <name...>', 'tools that it may decide about (default: all)')
    .option('--amount-max <amount>', 'largest amount that it may approve (default: no limit)')
    .option('--expires <time>', 'when it ends, from now: 30m, 12h, 90d (default: never)')
    .option('--json', 'print JSON')
    .action(create);
  keys
    .command('list')
    .description('keys with what they may; never their secrets')
    .option('--tenant <tenant>', 'of one tenant (default: all)')
    .option('--json', 'print JSON')
    .action(async ({ tenant, json }: { tenant?: string; json?: boolean }) => {
      const found = await withGatewayDatabase(await findStack('.'), (database, { Keys }) => new Keys(database, Date.now).list(tenant));
      print(json === true, found, () => (found.length === 0 ? 'no keys' : table(['key', 'name', 'tenant', 'roles', 'scope', 'state', 'last used'], found.map(row))));
    });
  keys
    .command('rotate <id>')
    .description('make a new key for the same use; the old one goes on for a while')
    .option('--grace <time>', 'how long the old one goes on: 0m, 12h', '24h')
    .option('--json', 'print JSON')
    .action(async (id: string, { grace, json }: { grace: string; json?: boolean }) => {
      const stack = await findStack('.');
      const graceMs = durationMs(grace, '--grace');
      const made = await withGatewayDatabase(stack, async (database, { Keys }) => {
        const all = new Keys(database, Date.now);
        const old = await existing(all, id);
        await audited(stack.brokers, 'key.rotate', old.tenant, `key ${id}`);
        return all.rotate(id, old.tenant, graceMs);
      });
      if (made === null) throw new CliError(`key ${id} was revoked: create a new one`);
      print(json === true, { key: made.key, ...made.view }, () => `${made.key}\nThe old key goes on for ${grace}.`);
    });
  keys
    .command('revoke <id>')
    .description('a key opens nothing from now on')
    .option('--json', 'print JSON')
    .action(async (id: string, { json }: { json?: boolean }) => {
      const stack = await findStack('.');
      const revoked = await withGatewayDatabase(stack, async (database, { Keys }) => {
        const all = new Keys(database, Date.now);
        const old = await existing(all, id);
        await audited(stack.brokers, 'key.revoke', old.tenant, `key ${id}`);
        return all.revoke(id, old.tenant);
      });
      print(json === true, { id, revoked }, () => (revoked ? `key ${id} is revoked` : `key ${id} was revoked already`));
    });
}

async function create({ name, role, tenant, tool, amountMax, expires, json }: CreateOptions): Promise<void> {
  const tenantOf = said('--tenant', Tenant, tenant);
  said('--name', KeyName, name);
  said('--role', KeyRoles, role);
  said('--tool', z.array(Name).optional(), tool);
  const amount = amountMax === undefined ? undefined : Number(amountMax);
  if (amount !== undefined && !(amount >= 0 && Number.isFinite(amount))) throw new CliError(`--amount-max ${amountMax ?? ''} is no amount`);
  const expiresAt = expires === undefined ? undefined : Date.now() + durationMs(expires, '--expires');
  for (const own of role.filter((each) => !isRole(each))) progress(`no address of the gateway asks for the role "${own}" (those are ${ROLES.join(', ')}): it counts where a contract names it`);
  const stack = await findStack('.');
  await audited(stack.brokers, 'key.create', tenantOf, `key of ${name} with ${role.join(', ')}`);
  const made = await withGatewayDatabase(stack, (database, { Keys }) => new Keys(database, Date.now).create({ tenant: tenantOf, name, roles: role, tools: tool, amountMax: amount, expiresAt }));
  print(json === true, { key: made.key, ...made.view }, () => `${made.key}\nIt is shown this once.`);
}

/** @throws CliError naming the option */
function said<Schema extends z.ZodType>(option: string, schema: Schema, value: unknown): z.output<Schema> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new CliError(`${option}: ${describeIssues(parsed.error)}`);
}

async function existing(keys: Keys, id: string): Promise<KeyView> {
  const found = (await keys.list()).find((key) => key.id === id);
  if (found === undefined) throw new CliError(`there is no key ${id}: \`holdfast keys list\` shows those that there are`);
  return found;
}

function row({ id, name, tenant, roles, tools, amountMax, expiresAt, revokedAt, usedAt }: KeyView): string[] {
  const scope = [...(tools === null ? [] : [`tools ${tools.join(', ')}`]), ...(amountMax === null ? [] : [`up to ${amountMax}`])];
  const state = revokedAt !== null ? 'revoked' : expiresAt !== null && expiresAt <= Date.now() ? 'expired' : expiresAt === null ? 'good' : `until ${isoTime(expiresAt)}`;
  return [`hf_${id}_…`, name, tenant, roles.join(', '), scope.join('; ') || 'all', state, usedAt === null ? '-' : isoTime(usedAt)];
}
