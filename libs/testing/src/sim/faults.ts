import type { EffectClass } from '@holdfast/protocol';
import type { Chance } from './chance.js';

export const SERVICES = ['orchestrator', 'ledger', 'reconciliation', 'compensation'] as const;
export type ServiceKind = (typeof SERVICES)[number];
export type ProcessKind = ServiceKind | 'worker' | 'client';

/** Where a process asks something of the world outside it: the awaits of the loop, the host and the SDK. */
export type Site =
  | 'store.take'
  | 'store.read'
  | 'store.lock'
  | 'store.commit'
  | 'publish'
  | 'publish.intents'
  | 'publish.results'
  | 'offset.commit'
  | 'group'
  | 'heartbeat'
  | 'fire.local'
  | 'fire.granted'
  | 'probe';

/**
 * What may happen to one ask.
 * `crash_before`: the process dies and the ask is never seen. `crash_after`: it takes effect, and
 * the process dies before it hears so. `lost_ack`: it takes effect, and the asker hears of an
 * error. `refused`: it takes no effect, and the asker hears of an error. `doubled`: it takes effect
 * twice in a row. `late`: the asker hears of an error, and it takes effect long after. `slow`: it
 * takes a second instead of milliseconds.
 */
export type SiteFault = 'crash_before' | 'crash_after' | 'lost_ack' | 'refused' | 'doubled' | 'late' | 'slow';

/** What may happen to a process, a server or a clock at a time. */
export type TimedFault = 'freeze' | 'cut_off' | 'clock_jump' | 'restart' | 'store_outage' | 'broker_outage';

export type Fault =
  | { readonly at: 'site'; readonly process: string; readonly site: Site; readonly nth: number; readonly kind: SiteFault }
  | { readonly at: 'time'; readonly ms: number; readonly target: string; readonly kind: TimedFault; readonly forMs: number };

/** Which faults a site knows. A cell of the coverage is one of these × the effect class that it met. */
export const SITE_FAULTS: Readonly<Record<Site, readonly SiteFault[]>> = {
  'store.take': ['crash_before', 'crash_after', 'lost_ack', 'refused', 'slow'],
  'store.read': ['crash_before', 'refused', 'slow'],
  'store.lock': ['crash_before', 'crash_after', 'refused', 'slow'],
  'store.commit': ['crash_before', 'crash_after', 'lost_ack', 'refused', 'slow'],
  publish: ['crash_before', 'crash_after', 'lost_ack', 'refused', 'doubled', 'late', 'slow'],
  'publish.intents': ['crash_before', 'crash_after', 'lost_ack', 'refused', 'doubled', 'late', 'slow'],
  'publish.results': ['crash_before', 'crash_after', 'lost_ack', 'refused', 'doubled', 'late', 'slow'],
  'offset.commit': ['crash_before', 'crash_after', 'lost_ack', 'refused', 'slow'],
  group: ['refused', 'slow'],
  heartbeat: ['refused', 'slow'],
  'fire.local': ['crash_before', 'crash_after', 'slow'],
  'fire.granted': ['crash_before', 'crash_after', 'slow'],
  probe: ['crash_before', 'crash_after', 'slow'],
};

export const TIMED_FAULTS: readonly TimedFault[] = ['freeze', 'cut_off', 'clock_jump', 'restart', 'store_outage', 'broker_outage'];

/** What a process asks the plan at each of its asks. */
export interface Asked {
  readonly process: string;
  readonly kind: ProcessKind;
  readonly site: Site;
  readonly nth: number;
}

/** Otherwise than a world has it by itself, milliseconds. */
export interface Tempo {
  /** After how long at least, and within how long, what died is there again. */
  readonly restartsAfterMs: number;
  readonly restartsWithinMs: number;
  /** After how long its writer hears that its connection broke, and after how long at least, and within how long, a late write arrives. */
  readonly lateHeardMs: number;
  readonly lateAfterMs: number;
  readonly lateWithinMs: number;
}

export interface FaultPlan extends Partial<Tempo> {
  /** Faults that come by themselves, at times from the beginning on. */
  readonly timed: readonly Extract<Fault, { at: 'time' }>[];
  /** `texts`: what the ask is about, in the words of its messages; absent for asks that are about no effect. */
  at(asked: Asked, elapsedMs: number, texts?: () => Iterable<string>): SiteFault | null;
}

export const noFaults: FaultPlan = { timed: [], at: () => null };

/** Exactly these. */
export function scripted(faults: readonly Fault[]): FaultPlan {
  const bySite = new Map(faults.flatMap((fault) => (fault.at === 'site' ? [[`${fault.process}|${fault.site}|${fault.nth}`, fault.kind] as const] : [])));
  return {
    timed: faults.flatMap((fault) => (fault.at === 'time' ? [fault] : [])),
    at: ({ process, site, nth }) => bySite.get(`${process}|${site}|${nth}`) ?? null,
  };
}

/** How likely each site is to be hit at one ask: the rare ones more, so that every cell is met. */
const WEIGHT: Readonly<Record<Site, number>> = {
  'store.take': 2,
  'store.read': 0.5,
  'store.lock': 2,
  'store.commit': 1,
  publish: 1,
  'publish.intents': 1,
  'publish.results': 3.5,
  'offset.commit': 3,
  group: 1,
  heartbeat: 0.2,
  'fire.local': 1,
  'fire.granted': 2,
  probe: 6,
};
/** These have little to do. */
const RARELY_AT_WORK: Readonly<Partial<Record<ProcessKind, number>>> = { reconciliation: 5, compensation: 2.5 };
/** Meetings that chance alone hardly ever brings about: a host dies before it commits to tasks of which some are reads; an answer about one attempt comes after the next has begun. */
const RARE = [
  { site: 'offset.commit', about: '"name":"rates.read"', kind: 'crash_before', often: 0.15 },
  { site: 'publish.results', about: '"probe":', kind: 'late', often: 0.2 },
] as const;
/** No ask is hit more often: what is asked again and again must get through at last. */
const OFTEN_MOST = 0.5;
/** Settling and answering come after what they are about. */
const comesLater = (site: Site, kind: ProcessKind): boolean => site === 'probe' || ((kind === 'reconciliation' || kind === 'compensation') && (site === 'store.commit' || site === 'publish'));

export interface RandomFaultOptions {
  /** Chance of a fault at one ask of weight 1. */
  readonly rate: number;
  /** No fault begins later than this after the beginning, milliseconds: then everything must come right. */
  readonly windowMs: number;
  /** The same, for what settles effects and answers them. */
  readonly laterWindowMs: number;
  readonly timedMax: number;
  readonly targets: readonly [string, ...string[]];
  readonly stores: readonly [ServiceKind, ...ServiceKind[]];
  /** How far one jump sets a clock, milliseconds. */
  readonly jumpMs: number;
}

/** Faults by chance. Each world knows only some kinds, and those the more: rare meetings of one kind with another become common. */
export function random(chance: Chance, options: RandomFaultOptions): FaultPlan {
  const known = (kind: SiteFault | TimedFault): boolean => !unknown.has(kind);
  const all = [...new Set(Object.values(SITE_FAULTS).flat()), ...TIMED_FAULTS];
  const unknown = new Set(chance.hits(0.3) ? [] : all.filter(() => chance.hits(0.4)));
  const atSite = Object.fromEntries(Object.entries(SITE_FAULTS).map(([site, kinds]) => [site, kinds.filter(known)])) as unknown as typeof SITE_FAULTS;
  const atTime = TIMED_FAULTS.filter(known);
  const timed = Array.from({ length: atTime.length === 0 ? 0 : chance.whole(0, options.timedMax) }, (): Extract<Fault, { at: 'time' }> => {
    const kind = chance.pick(atTime as [TimedFault, ...TimedFault[]]);
    const target = kind === 'store_outage' ? chance.pick(options.stores) : kind === 'broker_outage' ? 'broker' : chance.pick(options.targets);
    const forMs = kind === 'clock_jump' ? chance.whole(-options.jumpMs, options.jumpMs) : chance.hits(0.5) ? chance.whole(200, 2000) : chance.whole(2000, 9000);
    return { at: 'time', ms: chance.whole(20, options.windowMs), target, kind, forMs };
  });
  return {
    timed,
    at: ({ site, kind }, elapsedMs, texts) => {
      if (kind === 'client' || elapsedMs > (comesLater(site, kind) ? options.laterWindowMs : options.windowMs)) return null;
      for (const { site: where, about, kind: what, often } of RARE) if (site === where && known(what) && [...(texts?.() ?? [])].some((text) => text.includes(about)) && chance.hits(often)) return what;
      if (!chance.hits(Math.min(OFTEN_MOST, options.rate * WEIGHT[site] * (RARELY_AT_WORK[kind] ?? 1)))) return null;
      const kinds = atSite[site];
      return kinds.length === 0 ? null : chance.pick(kinds as [SiteFault, ...SiteFault[]]);
    },
  };
}

/** What comes about while runs go from worker to worker: what was said before is heard after. */
const HANDED_OVER: Readonly<Partial<Record<Site, readonly [SiteFault, number]>>> = { 'publish.intents': ['late', 0.3], publish: ['late', 0.1], 'fire.local': ['slow', 0.3] };
/** `quick`: a worker is hardly there when it goes again. `returning`: lanes go on elsewhere meanwhile, and come back to whom they were taken from. */
export type Handing = 'quick' | 'returning';
const QUICK_TIMES = 6;
/** When a worker goes, milliseconds: long enough after it has come to have been given runs, and they to have gone on with it. */
const RETURNING = [400, 2400, 4400, 6400];
const RETURNING_SPREAD_MS = 400;
/** How often a grant is written late then: what a worker was given in one holding of a lane comes to it in the next but one. */
const LATE_GRANTS = 0.5;
/** How often whoever grants runs is slow: then nothing newer has come yet. */
const SLOW_GRANTS = 0.05;
export const HANDING_TEMPO: Readonly<Record<Handing, Partial<Tempo>>> = {
  quick: { restartsWithinMs: 700, lateWithinMs: 5000 },
  returning: { restartsAfterMs: 900, restartsWithinMs: 1300, lateHeardMs: 30, lateAfterMs: 1000, lateWithinMs: 3000 },
};

const grants = (texts: (() => Iterable<string>) | undefined): boolean => [...(texts?.() ?? [])].some((text) => text.includes('"pages":'));

/** Faults by chance, and besides them a worker that comes and goes, with the writes and calls about it late or slow. */
export function handovers(chance: Chance, options: RandomFaultOptions, comesAndGoes: string, how: Handing): FaultPlan {
  const plan = random(chance, options);
  const times = how === 'quick' ? Array.from({ length: QUICK_TIMES }, () => chance.whole(200, 5000)) : RETURNING.map((ms) => ms + chance.whole(0, RETURNING_SPREAD_MS));
  const goes = times.map((ms): Extract<Fault, { at: 'time' }> => ({ at: 'time', ms, target: comesAndGoes, kind: 'restart', forMs: 0 }));
  return {
    timed: [...plan.timed, ...goes],
    at: (asked, elapsedMs, texts) => {
      const [kind, often] = HANDED_OVER[asked.site] ?? ['slow', 0];
      const within = asked.kind !== 'client' && elapsedMs <= options.windowMs;
      const grantsLate = within && how === 'returning' && asked.kind === 'orchestrator';
      if (grantsLate && asked.site === 'publish' && grants(texts) && chance.hits(LATE_GRANTS)) return 'late';
      if (grantsLate && asked.site === 'store.commit' && chance.hits(SLOW_GRANTS)) return 'slow';
      if (within && chance.hits(often)) return kind;
      return plan.at(asked, elapsedMs, texts);
    },
  };
}

export const describeFault = (fault: Fault): string =>
  fault.at === 'site' ? `${fault.kind} at ${fault.site} no. ${fault.nth} of ${fault.process}` : `${fault.kind} of ${fault.target} at ${fault.ms} ms for ${fault.forMs} ms`;

/** Cells of one run: `fault × boundary × effect class`, or `fault × process` for those that come by time. */
export type Cell = string;
export const cellOf = (kind: SiteFault, process: ProcessKind, site: Site, effect: EffectClass | 'any'): Cell => `${kind} × ${process}.${site} × ${effect}`;
export const timedCellOf = (kind: TimedFault, process: string): Cell => `${kind} × ${process}`;

const EVERY: readonly EffectClass[] = ['pure', 'idempotent', 'irreversible'];
const BOUNDARIES: readonly (readonly [ProcessKind, Site, readonly (EffectClass | 'any')[]])[] = [
  ...(['orchestrator', 'ledger'] as const).flatMap((kind) => [
    [kind, 'store.take', ['any']] as const,
    [kind, 'store.read', ['any']] as const,
    [kind, 'store.commit', EVERY] as const,
    [kind, 'publish', EVERY] as const,
    [kind, 'group', ['any']] as const,
    [kind, 'heartbeat', ['any']] as const,
  ]),
  ...(['reconciliation', 'compensation'] as const).flatMap((kind) => {
    const about: readonly EffectClass[] = kind === 'compensation' ? ['idempotent', 'irreversible'] : ['irreversible'];
    return [
      [kind, 'store.take', ['any']] as const,
      [kind, 'store.read', ['any']] as const,
      [kind, 'store.commit', about] as const,
      [kind, 'publish', about] as const,
      [kind, 'group', ['any']] as const,
      [kind, 'heartbeat', ['any']] as const,
    ];
  }),
  ['ledger', 'store.lock', ['any']],
  ['worker', 'probe', ['irreversible']],
  ['worker', 'publish', EVERY],
  ['worker', 'publish.intents', EVERY],
  ['worker', 'publish.results', EVERY],
  ['worker', 'offset.commit', EVERY],
  ['worker', 'fire.local', ['pure', 'idempotent']],
  ['worker', 'fire.granted', EVERY],
  ['worker', 'group', ['any']],
  ['worker', 'heartbeat', ['any']],
];

/** Every cell that many seeds together must meet. */
export const everyCell = (): Cell[] => [
  ...BOUNDARIES.flatMap(([process, site, effects]) => SITE_FAULTS[site].flatMap((kind) => effects.map((effect) => cellOf(kind, process, site, effect)))),
  ...(['freeze', 'cut_off', 'clock_jump', 'restart'] as const).flatMap((kind) => [...SERVICES, 'worker'].map((process) => timedCellOf(kind, process))),
  ...SERVICES.map((store) => timedCellOf('store_outage', store)),
  timedCellOf('broker_outage', 'broker'),
];
