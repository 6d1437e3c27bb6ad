/** The short form of a suite belongs to `npm test`, the full one to `npm run proof`. */
export const proof = <T>(short: T, full: T): T => (process.env['HOLDFAST_PROOF'] === 'full' ? full : short);
