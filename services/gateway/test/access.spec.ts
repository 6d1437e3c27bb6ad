import { describe, expect, it } from '@jest/globals';
import { holds, outOfScope, ROLES } from '../src/domain/access.js';

describe('roles', () => {
  it.each<[string[], string[]]>([
    [['viewer'], ['viewer']],
    [['agent'], ['viewer', 'agent']],
    [['approver'], ['viewer', 'approver']],
    [['operator'], ['viewer', 'operator']],
    [['admin'], ['viewer', 'agent', 'approver', 'operator', 'admin']],
    [['agent', 'approver'], ['viewer', 'agent', 'approver']],
    [['treasurer'], []],
    [[], []],
  ])('%j holds %j and no other', (roles, held) => {
    expect(ROLES.filter((role) => holds({ roles }, role))).toEqual(held);
  });
});

describe('scopes', () => {
  const all = { tools: null, amountMax: null };
  it.each([
    ['everything is open without any', all, { tool: 'charge', amount: '1e9' }],
    ['a tool of the list', { tools: ['charge'], amountMax: null }, { tool: 'charge' }],
    ['an amount up to the limit', { tools: null, amountMax: 100 }, { tool: 'charge', amount: '100.00' }],
    ['a matter without an amount', { tools: null, amountMax: 100 }, { tool: 'charge' }],
  ])('%s', (_, scope, matter) => {
    expect(outOfScope(scope, matter)).toBeNull();
  });

  it.each([
    ['another tool', { tools: ['charge'], amountMax: null }, { tool: 'wire' }],
    ['any tool of an empty list', { tools: [], amountMax: null }, { tool: 'wire' }],
    ['an amount above', { tools: null, amountMax: 100 }, { tool: 'charge', amount: '100.01' }],
    ['an amount as much below nought', { tools: null, amountMax: 100 }, { tool: 'charge', amount: '-101' }],
    ['an amount that can’t be compared', { tools: null, amountMax: 100 }, { tool: 'charge', amount: 'lots' }],
    ['an amount of nothing', { tools: null, amountMax: 100 }, { tool: 'charge', amount: ' ' }],
    ['an amount without end', { tools: null, amountMax: 100 }, { tool: 'charge', amount: 'Infinity' }],
  ])('%s is out of it', (_, scope, matter) => {
    expect(outOfScope(scope, matter)).toEqual(expect.any(String));
  });
});
