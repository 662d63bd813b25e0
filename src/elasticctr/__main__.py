from elasticctr.cli.app import main

main()
