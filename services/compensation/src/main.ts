import { startService } from '@holdfast/runtime/nest';
import { CompensationModule } from './module.js';

startService({ name: 'compensation', module: CompensationModule });
