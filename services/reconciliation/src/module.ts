import { Module } from '@nestjs/common';
import type { ContractBook } from '@holdfast/runtime';
import { CONTRACTS, SERVICE } from '@holdfast/runtime/nest';
import { CaseHandlers } from './handlers.js';
import { CaseNotifier } from './notify/notifier.js';
import { reconciliation } from './routes.js';

@Module({
  providers: [
    { provide: CaseHandlers, inject: [CONTRACTS], useFactory: (contracts: ContractBook) => new CaseHandlers(contracts) },
    { provide: SERVICE, inject: [CaseHandlers], useFactory: reconciliation },
    CaseNotifier,
  ],
  exports: [SERVICE],
})
export class ReconciliationModule {}
