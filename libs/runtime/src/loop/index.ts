export { chainHash, type ChainLink } from './chain.js';
export { Loop, type LoopHealth, type LoopOptions } from './loop.js';
export type { LoopObserver, Marked, SpanMark, TurnFacts } from './observer.js';
export { on, type Inbound, type InboundTopic, type Route, type RouteOptions, type Service, type SharedWord, type Turn, type Unreadable } from './service.js';
export { blameOf, type Blame } from './faults.js';
export { DamagedHistory, foldRows, NewerHistory, type Cached } from './streams.js';
