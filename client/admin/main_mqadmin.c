/* The operator's tool. */
#include "client/admin/admin.h"

int main(int argc, char **argv)
{
    return admin_main(argc, argv);
}
