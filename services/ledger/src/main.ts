import { startService } from '@holdfast/runtime/nest';
import { LedgerModule } from './module.js';

startService({ name: 'ledger', module: LedgerModule });
