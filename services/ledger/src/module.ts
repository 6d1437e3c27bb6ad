import { Module } from '@nestjs/common';
import type { ContractBook } from '@holdfast/runtime';
import { CONTRACTS, SERVICE, SOURCE } from '@holdfast/runtime/nest';
import { EffectHandlers } from './handlers.js';
import { ledger } from './routes.js';

@Module({
  providers: [
    { provide: EffectHandlers, inject: [CONTRACTS, SOURCE], useFactory: (contracts: ContractBook, source: string) => new EffectHandlers(contracts, source) },
    { provide: SERVICE, inject: [EffectHandlers], useFactory: ledger },
  ],
  exports: [SERVICE],
})
export class LedgerModule {}
